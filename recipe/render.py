"""Render the recipe for the platforms of conda-forge, and print what each build requires.

python -m pip install py-rattler-build
python recipe/render.py [RECIPE]
"""

import sys
from pathlib import Path

from rattler_build import JinjaConfig, PlatformConfig, RenderConfig, Stage0Recipe, VariantConfig

# platform: the one it is built on
PLATFORMS = {
    "linux-64": "linux-64",
    "linux-aarch64": "linux-64",
    "osx-64": "osx-64",
    "osx-arm64": "osx-64",
    "win-64": "win-64",
}
FOLDER = Path(__file__).resolve().parent


def main():
    """Print the number of builds and the requirements of the first, for each platform."""
    path = sys.argv[1] if len(sys.argv) > 1 else FOLDER / "recipe.yaml"
    recipe = Stage0Recipe.from_file(str(path))
    for target, builder in PLATFORMS.items():
        platform = PlatformConfig(
            target_platform=target, build_platform=builder, host_platform=target
        )
        variants = VariantConfig.from_file_with_context(
            str(FOLDER / "variants.yaml"), JinjaConfig(platform=platform)
        )
        builds = recipe.render(variants, RenderConfig(platform=platform))
        (source,) = builds[0].recipe.to_dict()["source"]
        print(f"{target}: {len(builds)} builds of {source.get('url') or source['path']}")
        for part, packages in builds[0].recipe.to_dict()["requirements"].items():
            print(f"    {part}: {', '.join(map(str, packages))}")


if __name__ == "__main__":
    main()
