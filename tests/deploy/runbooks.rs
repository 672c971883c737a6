//! Tests that every alert has a runbook, and every runbook an alert.

use std::collections::BTreeSet;
use std::fs;

use crate::helm::{root, yaml};

/// Returns the anchor of a heading in a rendered page.
fn anchor(heading: &str) -> String {
    let kept = heading
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

#[test]
fn every_alert_has_a_runbook_and_every_runbook_an_alert() {
    let rules = yaml(&root().join("deploy/prometheus/alerts.yaml"));
    let groups = rules["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let alerts: Vec<_> = rules.filter(|rule| rule["alert"].is_string()).collect();
    assert!(alerts.len() > 10, "{}", alerts.len());

    let page = fs::read_to_string(root().join("docs/operations.md")).unwrap();
    let headings = page
        .lines()
        .filter_map(|line| line.strip_prefix("### Palimpsest"));
    let headings: BTreeSet<_> = headings.map(|rest| format!("Palimpsest{rest}")).collect();
    let mut told = BTreeSet::new();
    for alert in alerts {
        let name = alert["alert"].as_str().unwrap().to_owned();
        let address = alert["annotations"]["runbook_url"].as_str().unwrap();
        let wanted = format!("docs/operations.md#{}", anchor(&name));
        assert_eq!(address, wanted, "{name}");
        told.insert(name);
    }
    assert_eq!(headings, told);
}
