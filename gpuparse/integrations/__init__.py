"""What makes gpuparse a part of other libraries."""
