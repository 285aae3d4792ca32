"""Fitting the model of whole layers."""
