import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("backlog", "0001_initial"),
        ("fleet", "0004_public_link"),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name="execution",
            name="public_link",
            field=models.ForeignKey(
                blank=True, db_index=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name="+", to="fleet.publiclink"
            ),
        ),
        migrations.AddIndex(
            model_name="execution",
            index=models.Index(
                condition=models.Q(("seen_at__isnull", False), ("status", "queued")), fields=["seen_at"], name="execution_attended"
            ),
        ),
    ]
