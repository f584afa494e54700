"""Tables, comparisons, figures and pages from the JSON lines of the benchmarks. README.md describes the commands."""
