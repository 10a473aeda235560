"""The operating system under a run: files, processes, memory, interrupts, optional libraries."""
