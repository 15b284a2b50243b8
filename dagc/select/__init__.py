"""Learned choices: nearest neighbours over sizes, and the labels that they are trained on."""
