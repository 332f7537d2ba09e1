"""Blobs and archive objects in a bucket of S3, or of an S3-compatible store (boto3)."""
