"""Sizes, offsets and constants of the header as the C compiler has them (layout.json)."""

import json
import subprocess
import tempfile
from pathlib import Path


def _program(api):
    lines = ["#include <stdio.h>", '#include "nxd.h"', "int main(void) {", '  printf("{");']
    structs = []
    for s in api["structs"]:
        fields = [f'    printf("%s\\"{f["name"]}\\": [%zu, %zu]", "{", " if i else ""}", '
                  f'offsetof({s["name"]}, {f["name"]}), sizeof((({s["name"]}*)0)->{f["name"]}));'
                  for i, f in enumerate(s["fields"])]
        structs.append("\n".join([
            f'    printf("\\"{s["name"]}\\": {{\\"size\\": %zu, \\"align\\": %zu, \\"fields\\": {{", '
            f'sizeof({s["name"]}), _Alignof({s["name"]}));', *fields, '    printf("}}");']))
    lines.append('  printf("\\"structs\\": {");')
    lines.append('\n    printf(", ");\n'.join(structs))
    lines.append('  printf("}, \\"constants\\": {");')
    names = [m["name"] for m in api["macros"]]
    names += [v["name"] for e in api["enums"] for v in e["values"]]
    for i, name in enumerate(names):
        lines.append(f'  printf("%s\\"{name}\\": %d", "{", " if i else ""}", (int){name});')
    lines += ['  printf("}}\\n");', "  return 0;", "}"]
    return "\n".join(lines) + "\n"


def measure(include_dir, api):
    """{"structs": {name: {"size", "align", "fields": {name: [offset, size]}}}, "constants": {}}"""
    with tempfile.TemporaryDirectory() as directory:
        source, program = Path(directory, "layout.c"), Path(directory, "layout")
        source.write_text(_program(api))
        subprocess.run(["gcc", "-std=c11", "-I", str(include_dir), "-o", str(program), str(source)],
                       check=True)
        return json.loads(subprocess.run([str(program)], check=True, capture_output=True).stdout)
