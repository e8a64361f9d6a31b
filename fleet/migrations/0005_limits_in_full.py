from typing import Any

from django.conf import settings
from django.db import migrations, models
from django.db.models import F, Q

MAX_CAP = 100_000


def hold_cap_below_its_bound(apps: Any, _schema_editor: object) -> None:
    """The environment's first value was not bounded before."""
    apps.get_model("fleet", "FleetSettings").objects.filter(max_concurrent_tasks__gt=MAX_CAP).update(max_concurrent_tasks=MAX_CAP)


class Migration(migrations.Migration):
    dependencies = [
        ("fleet", "0004_public_link"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RunPython(hold_cap_below_its_bound, migrations.RunPython.noop),
        migrations.RemoveConstraint(model_name="fleetsettings", name="fleet_cap_in_range"),
        migrations.AddConstraint(
            model_name="fleetsettings",
            constraint=models.CheckConstraint(
                condition=Q(max_concurrent_tasks__isnull=True) | Q(max_concurrent_tasks__gte=1, max_concurrent_tasks__lte=MAX_CAP),
                name="fleet_cap_in_range",
            ),
        ),
        migrations.AddField(model_name="fleetsettings", name="ceiling_version", field=models.PositiveBigIntegerField(default=1)),
        migrations.AddField(model_name="fleetsettings", name="cap_version", field=models.PositiveBigIntegerField(default=1)),
        migrations.AddConstraint(
            model_name="agent",
            constraint=models.CheckConstraint(
                condition=Q(override_until=None, base_max_parallel_tasks=None)
                | Q(override_until__isnull=False, base_max_parallel_tasks__isnull=False),
                name="agent_override_whole",
            ),
        ),
        migrations.AddIndex(
            model_name="agent",
            index=models.Index(fields=["override_until"], condition=Q(override_until__isnull=False), name="agent_overrides"),
        ),
        migrations.AddIndex(
            model_name="auditentry",
            index=models.Index(F("agent"), F("at").desc(), F("id").desc(), name="audit_newest_of_agent"),
        ),
        migrations.AddIndex(model_name="auditentry", index=models.Index(F("at").desc(), F("id").desc(), name="audit_newest")),
    ]
