"""Blobs and archive objects in a bucket of S3, or of a store that speaks S3 (boto3)."""
