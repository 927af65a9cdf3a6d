"""LEAF's data sets FEMNIST, CelebA and Shakespeare. Each client is a person or a role."""
