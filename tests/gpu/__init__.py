"""The truth: what a GPU makes of hundreds of small binaries, against what cuwheel predicts without one."""
