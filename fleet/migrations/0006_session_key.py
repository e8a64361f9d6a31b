import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("fleet", "0005_limits_in_full")]

    operations = [
        migrations.AddField(
            model_name="session",
            name="key",
            field=models.ForeignKey(
                blank=True,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.SET_NULL,
                related_name="sessions",
                to="fleet.apikey",
            ),
        ),
    ]
