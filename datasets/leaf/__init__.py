"""LEAF: FEMNIST, CelebA and Shakespeare, with real people as clients."""
