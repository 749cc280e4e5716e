#!/usr/bin/env bash
# scripts/format fails on a page with a line that is too wide, or a page or a source's comment with a
# sentence that opens with a word that is no subject, and names the line; code, tables and words that
# cannot be divided pass.
# usage: test_prose.sh SOURCE_DIR [BUILD_DIR]
set -euo pipefail
. "$(dirname "$0")/lib.sh"
source=$1
need_commands clang-format-14 python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

word=$(printf 'x%.0s' {1..60})
what=What of=Of those=Those whose=Whose  # in what would be comments of this file otherwise
cat > good.md << END
# A page of which nothing is wrong
Rows say what they mean. The word "Of" is one, and \`What\` is code: those are fine. The
Offer is no opener. The number 3.
A link may be
[long]($word/$word)
https://$word.example/$word

| Rows | may be as wide as they must be $word $word |
|---|---|

    code may be wide, too: $word $word
    What is code. Of course.

\`\`\`
What is fenced. $word $word
\`\`\`
END
cat > bad.md << END
# $what is wrong
A line of $word $word
Rows are good. What follows
is not. A sentence that goes on over a line's end.
Those are bad, too.

* Whose is this item?
  1. **Whoever** opens one
> Of all lines, a quotation.

| cell | What | and more. Of more |

| is code over | \`\`\` |
* an item that is too wide: $word $word
A sentence (Those in brackets) goes on. (What stands in brackets is one.)
END
"$source/scripts/check_prose" good.md
if "$source/scripts/check_prose" good.md bad.md 2> problems; then echo "a bad page passes"; exit 1; fi
sed -E 's/: .*"(.*)".*/ \1/; s/: has .*/ wide/' problems > found
diff found - << END
bad.md:1 What
bad.md:2 wide
bad.md:3 What
bad.md:5 Those
bad.md:7 Whose
bad.md:8 Whoever
bad.md:9 Of
bad.md:11 Of
bad.md:11 What
bad.md:14 wide
bad.md:15 What
END

# Comments of sources; strings are none.
cat > good.cpp << END
// A rank that says "Of" is fine, and so is \`What\`; of course. The
// Offer is no opener.
const char* s = "// $what"; char quote = '"';
const char* raw = R"(/* $what */)";
END
cat > bad.cpp << END
// $what is wrong
int x;  // Of this
/* Good to begin with. Those
 * lines go on.
 *   - Whose item is it?
 */
char quote = '"';  /// Whoever
// A sentence that
int y;  // What is new
END
cat > bad.rs << END
fn f<'a>(x: &'a str) -> bool { x == r#"// $what " is code"# }
/// Good.
///
/// Those paragraphs
END
cat > bad.go << END
var s = \`" // $what\`  // Of one
END
cat > bad.sh << END
#!/bin/sh
echo "# $what" \${x#What}  # $of one
  # Good. $whose is it?
END
cat > bad.py << END
"""Good to begin with. $what

is bad"""
x = "# Of"  # $those of it
END
"$source/scripts/check_prose" good.md good.cpp
if "$source/scripts/check_prose" good.cpp bad.{cpp,rs,go,sh,py} 2> problems; then echo "a bad comment passes"; exit 1; fi
sed -E 's/: .*"(.*)".*/ \1/' problems > found
diff found - << END
bad.cpp:1 What
bad.cpp:2 Of
bad.cpp:3 Those
bad.cpp:5 Whose
bad.cpp:7 Whoever
bad.cpp:9 What
bad.rs:4 Those
bad.go:1 Of
bad.sh:2 Of
bad.sh:3 Whose
bad.py:1 What
bad.py:4 Those
END

# A tree of its own, as scripts/format sees it.
mkdir -p tree/{bench,examples,include,src,tests,tools,scripts,docs,bindings/go}
cp "$source"/scripts/{format,check_prose} tree/scripts
echo 'int x;' > tree/src/x.c
cp good.md tree/docs
tree/scripts/format
for page in docs/bad.md bindings/go/README.md; do
  cp bad.md "tree/$page"
  for option in "" --fix; do
    # shellcheck disable=SC2086
    if tree/scripts/format $option > log 2>&1; then echo "scripts/format $option passes $page"; exit 1; fi
    grep -q "^$page:1: " log || { cat log; exit 1; }
  done
  rm "tree/$page"
done
for bad in src/bad.cpp tests/bad.py; do
  cp "bad.${bad##*.}" "tree/$bad"
  [[ $bad == *.py ]] || clang-format-14 -i "tree/$bad"
  if tree/scripts/format > log 2>&1; then echo "scripts/format passes $bad"; exit 1; fi
  grep -q "^$bad:1: " log || { cat log; exit 1; }
  rm "tree/$bad"
done
for bad in src/x.c tools/x.c bindings/go/x.h; do
  echo 'int  x;' > "tree/$bad"
  if tree/scripts/format > log 2>&1; then echo "scripts/format passes a bad $bad"; exit 1; fi
  tree/scripts/format --fix
  tree/scripts/format
done
