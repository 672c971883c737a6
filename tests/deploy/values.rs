//! Tests that the chart's README lists every value with its default.

use std::fs;

use serde_json::Value;

use crate::helm::{chart, yaml};

fn leaves(path: &str, value: &Value, all: &mut Vec<String>) {
    match value.as_object().filter(|map| !map.is_empty()) {
        Some(map) => {
            for (key, value) in map {
                let path = format!("{path}.{key}");
                leaves(path.trim_start_matches('.'), value, all);
            }
        }
        None => all.push(path.to_owned()),
    }
}

/// Returns the rows of the README's table: value and default.
fn rows(readme: &str) -> Vec<(&str, &str)> {
    let lines = readme.lines().filter(|line| line.starts_with("| `"));
    let cells = lines.map(|line| line.trim_matches('|').split('|').map(str::trim));
    cells
        .map(|mut cells| {
            let mut cell = || cells.next().unwrap().trim_matches('`');
            (cell(), cell())
        })
        .collect()
}

#[test]
fn the_readme_lists_every_value_with_its_default() {
    let readme = fs::read_to_string(chart().join("README.md")).unwrap();
    let rows = rows(&readme);
    let values = yaml(&chart().join("values.yaml"));
    for (path, default) in &rows {
        let pointer = format!("/{}", path.replace('.', "/"));
        let value = values.pointer(&pointer);
        let value = value.unwrap_or_else(|| panic!("{path} is no value"));
        // Values with many parts are described in values.yaml.
        if *default != "see values.yaml" {
            assert_eq!(value.to_string(), *default, "{path}");
        }
    }
    let mut all = Vec::new();
    leaves("", &values, &mut all);
    for leaf in all {
        let is_told = |path: &str| leaf == path || leaf.starts_with(&format!("{path}."));
        let told = rows.iter().filter(|(path, _)| is_told(path)).count();
        assert_eq!(told, 1, "{leaf}");
    }
}
