"""Benchmarks of smallvar for asv (airspeed velocity)."""
