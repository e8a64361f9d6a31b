"""The Celery application: publishes and runs `runtime.*` tasks on a pool of threads."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "trinity.settings")

app = Celery("trinity")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()

# Loaded by its name when a worker starts: by then Django is set up.
app.steps["worker"].add("runtime.worker:HousekeepingStep")
app.steps["worker"].add("runtime.worker:ListenerStep")
app.steps["consumer"].add("runtime.hearing:EarStep")
