"""ImageNet-21k."""
