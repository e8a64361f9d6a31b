"""The one row of fleet-wide settings, with the first values that the environment names."""

from django.db import migrations

from core.conf import conf

MAX_CEILING = 32


def make_row(apps, _schema_editor):
    apps.get_model("fleet", "FleetSettings").objects.get_or_create(
        id=1,
        defaults={
            "max_parallel_tasks_ceiling": min(MAX_CEILING, conf.max_parallel_tasks_ceiling),
            "max_concurrent_tasks": conf.max_concurrent_tasks or None,
        },
    )


class Migration(migrations.Migration):
    dependencies = [("fleet", "0001_initial")]
    operations = [migrations.RunPython(make_row, migrations.RunPython.noop)]
