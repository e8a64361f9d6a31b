"""What having limits costs, and how full the slots stay: each figure beside a floor or a peer measured in the same run."""
