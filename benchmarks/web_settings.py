"""Trinity's settings with one more URL: the bare view that `submit` is compared with."""

from trinity.settings import *

ROOT_URLCONF = "benchmarks.web_urls"
