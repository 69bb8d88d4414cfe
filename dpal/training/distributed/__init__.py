"""DP-SGD over several processes on one machine, by the same law as in one."""
