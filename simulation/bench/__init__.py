"""What the parts of fedsel cost: `fedsel bench`."""
