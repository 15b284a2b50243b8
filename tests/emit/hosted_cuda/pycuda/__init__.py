"""Stands for PyCUDA where there is no GPU, see driver.py."""
