//! Rules of the C interface that this crate keeps, by the tags of bindings/api.json.
use std::collections::HashMap;
use std::path::{Path, PathBuf};

fn sources(directory: &Path, found: &mut Vec<(PathBuf, String)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            let text = std::fs::read_to_string(&path).unwrap();
            found.push((path, text));
        }
    }
}

/// The functions, by name, and for each true if it is local; `None` in an installed copy, which lacks the file.
fn tags() -> Option<HashMap<String, bool>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../api.json");
    let text = std::fs::read_to_string(path).ok()?;
    let tag = |line: &str| {
        let name = line.trim().strip_prefix("{\"name\": \"")?.split('"').next()?;
        let kind = line.split("\"tag\": {\"kind\": \"").nth(1)?.split('"').next()?;
        Some((name.to_string(), kind == "local"))
    };
    let tags: HashMap<_, _> = text.lines().filter_map(tag).collect();
    assert!(tags.len() > 250 && tags["nxd_version"] && !tags["nxd_barrier"]);
    Some(tags)
}

fn names(text: &str) -> impl Iterator<Item = &str> {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    text.split(move |c| !word(c)).filter(|name| name.starts_with("nxd_") && !name.ends_with("_t"))
}

/// The body of a block that starts at the first brace.
fn block(text: &str) -> &str {
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 1 => return &text[..i],
            '}' => depth -= 1,
            _ => {}
        }
    }
    panic!("a block without an end");
}

#[test]
fn drops_call_local_functions_alone() {
    let tags = match tags() {
        Some(tags) => tags,
        None => return,
    };
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let (mut objects, mut drops) = (0, 0);
    for (path, text) in &files {
        for part in text.split("object! {").skip(1) {
            for name in names(block(&format!("{{{}", part))) {
                assert!(tags[name], "{}: {} is no local function", path.display(), name);
                objects += 1;
            }
        }
        for part in text.split(" Drop for ").skip(1) {
            for name in names(block(part)) {
                assert!(tags[name], "{}: {} is no local function", path.display(), name);
                drops += 1;
            }
        }
    }
    assert!(objects >= 15, "{} destroys", objects);
    assert!(drops >= 3, "{} other functions", drops);
}

/// Functions that the safe layer does not wrap, and why; the raw layer has them.
const RAW_ONLY: [(&str, &str); 6] = [
    ("nxd_work_set_callback", "executors poll Work::descriptor"),
    ("nxd_status_string", "statuses print themselves"),
    ("nxd_last_error_copy", "for languages whose threads move"),
    ("nxd_python_capsule_destroy", "for Python"),
    ("nxd_tensor_from_dlpack_versioned", "the other form is enough"),
    ("nxd_tensor_to_dlpack_versioned", "the other form is enough"),
];

#[test]
fn every_function_is_wrapped() {
    let tags = match tags() {
        Some(tags) => tags,
        None => return,
    };
    let mut files = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    let used: std::collections::HashSet<&str> =
        files.iter().flat_map(|(_, text)| names(text)).collect();
    let mut missing: Vec<&str> = tags
        .keys()
        .map(String::as_str)
        // Defaults are those of nxd-sys. Workspaces are for compilers, which use the raw layer.
        .filter(|name| !name.ends_with("_init") && !name.ends_with("_get_workspace"))
        .filter(|name| !used.contains(name))
        .filter(|name| !RAW_ONLY.iter().any(|(raw, _)| raw == name))
        .collect();
    missing.sort_unstable();
    for (name, why) in RAW_ONLY {
        assert!(tags.contains_key(name) && !used.contains(name), "{}: {}", name, why);
    }
    assert!(missing.is_empty(), "neither wrapped nor listed as raw: {:?}", missing);
}
