"""Coverage-guided fuzzing of the readers, one harness each. `python tests/fuzz/fuzz_elf.py -max_total_time=60`"""
