"""What a GPU with a driver makes of device code: one model."""
