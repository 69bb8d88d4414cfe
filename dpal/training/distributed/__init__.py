"""DP-SGD over several processes, of one machine or of several, by the same law as in one."""
