"""The tables of src/cuwheel/facts/data derived again from real packages and other people's tables: ./run facts."""
