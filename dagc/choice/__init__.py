"""Learned choices from sizes: nearest neighbours, trees and forests, and the labels that they are trained on."""
