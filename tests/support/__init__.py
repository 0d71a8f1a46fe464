"""What tests share: real servers, databases cloned from a template, real Celery processes."""
