"""Stands for a training script; only its presence is checked."""
