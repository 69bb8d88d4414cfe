"""Convolutions that turn and flip with the image, and the ResNet-9 made of them."""
