//! Tests of Kubernetes Secrets in YAML and JSON, and of other objects, which must stay unchanged.

use super::super::redact;

/// Checks a text in which `«…»` marks each value that must be redacted.
#[track_caller]
fn check(marked: &str) {
    let text = marked.replace(['«', '»'], "");
    let mut parts = marked.split('«');
    let mut expected = parts.next().unwrap_or_default().to_owned();
    let mut count = 0;
    for part in parts {
        let (_, after) = part.split_once('»').expect("a mark");
        expected.push_str("[redacted: kubernetes secret]");
        expected.push_str(after);
        count += 1;
    }
    let redacted = redact(&text);
    assert_eq!(
        (redacted.text.as_ref(), redacted.count),
        (&*expected, count)
    );
    assert_eq!(redact(&expected).count, 0);
}

#[test]
fn values_in_yaml_are_redacted_for_any_name_and_order() {
    check(
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: db\ndata:\n  pg-main: «c3dvcmRmaXNo»\n  x: «eQ==»\n",
    );
    check(
        "apiVersion: v1\ndata:\n  pg-main: «c3dvcmRmaXNo»\nkind: Secret\nmetadata:\n  name: db\n",
    );
    check("kind: \"Secret\"\nstringData:\n  main: '«swordfish»'\n  other: \"«two words»\"\n");
    check(
        "kind: Secret\nstringData:\n  app.conf: |\n    «user = ann»\n    «pin = 1234»\nimmutable: true\n",
    );
    check(
        "items:\n- apiVersion: v1\n  data:\n    a: «c3dvcmRmaXNo»\n  kind: Secret\n- apiVersion: v1\n  data:\n    b: plain\n  kind: ConfigMap\n",
    );
    check(
        "kind: ConfigMap\ndata:\n  a: plain\n---\nkind: Secret\ndata:\n  a: «c3dvcmRmaXNo»\n---\nkind: ConfigMap\ndata:\n  a: plain\n",
    );
    // Without `---` between them, the repeated `apiVersion` begins the second object.
    check(
        "apiVersion: v1\nkind: ConfigMap\ndata:\n  a: plain\napiVersion: v1\nkind: Secret\ndata:\n  a: «c3dvcm»",
    );
}

#[test]
fn values_in_escaped_json_are_redacted() {
    let plain = "{\"apiVersion\": \"v1\", \"data\": {\"main\": \"«c3dvcmRmaXNo»\", \"x\": \"«eQ==»\"}, \"kind\": \"Secret\", \"metadata\": {\"name\": \"db\"}}";
    check(plain);
    check(&plain.replace(", ", ",\n    "));
    let once = plain.replace('"', "\\\"");
    check(&format!("last-applied-configuration: |\n  \"{once}\""));
    // Three backslashes before each quote: JSON in a string of JSON, which is itself in a string.
    let twice = plain.replace('"', "\\\\\\\"");
    check(&format!(
        "{{\"stdout\":\"{{\\\"note\\\":\\\"{twice}\\\"}}\"}}"
    ));
    check("{\"kind\":\"Secret\",\"stringData\":{\"main\":\"«cut off»\"");
}

#[test]
fn other_objects_templates_and_references_are_unchanged() {
    // `name: Secret` is a value under `data` here, not the kind of the object.
    check("kind: ConfigMap\ndata:\n  mode: fast\n  name: Secret\n");
    check(
        "kind: Secret\ndata:\n  main: {{ .Values.main }}\n  other: ${MAIN}\nmetadata:\n  name: db\n",
    );
    check(
        "{\"kind\":\"ConfigMap\",\"data\":{\"main\":\"plain\"},\"ref\":{\"kind\":\"Secret\",\"name\":\"db\"}}",
    );
    check("the kind of a Secret: data stays encoded, see kind: SecretStore\ndata: none\n");
}
