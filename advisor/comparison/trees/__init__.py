"""The two sides of a comparison as trees of files: from git or from folders."""
