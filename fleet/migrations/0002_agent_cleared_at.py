from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ("fleet", "0001_initial"),
    ]

    operations = [
        migrations.AddField(
            model_name="agent",
            name="cleared_at",
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
    ]
