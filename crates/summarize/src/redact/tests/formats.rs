//! Tests of every published key format and every context pattern. The secrets are assembled at run
//! time.

use super::{fake, gone, stays};

const HEX: &str = "0123456789abcdef";
const LOWER: &str = "a1b2c3d4e5f6g7h8i9j0klmnopqrstuv";
const UPPER: &str = "A1B2C3D4E5F6G7H8J9K0LMNPQRSTUVWX";
const UUID: &str = "1b9d6bcd-bbfd-4b2d-9b5d-ab8dfbbd4bed";

fn of(letters: &str, length: usize) -> String {
    letters.chars().cycle().take(length).collect()
}

/// Expands a template: `{h40}` is forty hexadecimal digits, `{l}` lower case, `{u}` upper case,
/// `{m}` mixed, and `{id}` a UUID.
fn made(form: &str) -> String {
    let mut out = String::new();
    let mut rest = form;
    while let Some((before, after)) = rest.split_once('{') {
        let (part, after) = after.split_once('}').expect("a closing brace");
        out.push_str(before);
        if part == "id" {
            out.push_str(UUID);
        } else {
            let length = part[1..].parse().expect("a length");
            out.push_str(&match &part[..1] {
                "h" => of(HEX, length),
                "l" => of(LOWER, length),
                "u" => of(UPPER, length),
                _ => fake("", length),
            });
        }
        rest = after;
    }
    out + rest
}

const FORMS: &[(&str, &str)] = &[
    ("docker token", "dckr_pat_{m27}"),
    ("docker token", "dckr_oat_{m32}"),
    ("atlassian token", "ATATT3xFfGF0{m100}"),
    ("atlassian token", "ATCTT3xFfGN0{m100}"),
    ("atlassian token", "ATBB{m32}"),
    ("atlassian token", "ATTA{h64}"),
    ("discord token", "MTk4{m22}.Cl2FMQ.{m27}"),
    ("telegram token", "123456789:AA{m33}"),
    ("azure secret", "a1b8Q~{m34}"),
    ("azure secret", "{m76}AZDO{l4}"),
    ("azure secret", "{m52}JQQJ99{m26}"),
    ("azure secret", "{m76}+ASt{m8}=="),
    ("openai key", "sess-{m40}"),
    ("google key", "AQ.Ab8R{m40}"),
    ("google key", "1//0{m40}"),
    ("aws key", "ABSK{m120}"),
    ("github token", "ghs_12345_eyJ{m20}.{m20}.{m20}"),
    ("gitlab token", "glrtr-{m20}"),
    ("gitlab token", "GR1348941{m20}"),
    ("webhook", "https://acme.webhook.office.com/webhookb2/{m40}"),
    ("api key", "sbp_{h40}"),
    ("api key", "sb_secret_{m31}"),
    ("api key", "ntn_{m46}"),
    ("api key", "secret_{m43}"),
    ("api key", "PMAK-{h24}-{h34}"),
    ("api key", "PMAT-{u26}"),
    ("api key", "{m14}.atlasv1.{m67}"),
    ("api key", "dor_v1_{h64}"),
    ("api key", "HRKU-{m60}"),
    ("api key", "v1.0-{h24}-{h146}"),
    ("api key", "vcp_{m56}"),
    ("api key", "vercel_blob_rw_{m40}"),
    ("api key", "nfp_{m36}"),
    ("api key", "rnd_{m32}"),
    ("api key", "pscale_tkn_{m43}"),
    ("api key", "napi_{l64}"),
    ("api key", "npg_{m16}"),
    ("api key", "dp.st.prd.{m43}"),
    ("api key", "pul-{h40}"),
    ("api key", "dapi{h32}-2"),
    ("api key", "AVNS_{m19}"),
    ("api key", "LTAI{m20}"),
    ("api key", "mdb_sa_sk_{m40}"),
    ("api key", "hvr.{m90}"),
    ("api key", "sha256~{m43}"),
    ("api key", "ops_eyJ{m250}"),
    ("api key", "A3-{u6}-{u6}-{u5}-{u5}-{u5}-{u5}"),
    ("api key", "cio{m32}"),
    ("api key", "oy2{l43}"),
    ("api key", "CCIPAT_{m22}_{h40}"),
    ("api key", "bkua_{h40}"),
    ("api key", "sqp_{h40}"),
    ("api key", "AKCp{m69}"),
    ("api key", "sgp_{h16}_{h40}"),
    ("api key", "API-{u26}"),
    ("api key", "dbtc_{m44}"),
    ("api key", "NRRA-{h42}"),
    ("api key", "{h32}FFFFNRAL"),
    ("api key", "dt0c01.{u24}.{u64}"),
    ("api key", "hcaik_{l40}"),
    ("api key", "xaat-{id}"),
    ("api key", "phx_{m43}"),
    ("api key", "sdk-{id}"),
    ("api key", "lin_oauth_{m40}"),
    ("api key", "pat{m14}.{h64}"),
    ("api key", "figd_{m40}"),
    ("api key", "pat-eu1-{id}"),
    ("api key", "CFPAT-{m43}"),
    ("api key", "shpua_{h32}"),
    ("api key", "sq0csp-{m43}"),
    ("api key", "EAAA{m60}"),
    ("api key", "access_token$production${l16}${h32}"),
    ("api key", "key-{h32}"),
    ("api key", "{h32}-us21"),
    ("api key", "xkeysib-{h64}-{m16}"),
    ("api key", "re_{m8}_{m24}"),
    ("api key", "shippo_live_{h40}"),
    ("api key", "access-production-{id}"),
    ("api key", "s.{m24}"),
    ("api key", "tgp_v1_{m43}"),
    ("api key", "fw_{m24}"),
    ("api key", "csk-{l48}"),
    ("api key", "lsv2_pt_{h32}_{h10}"),
    ("api key", "pcsk_{m6}_{m63}"),
    ("api key", "fc-{h32}"),
    ("api key", "e2b_{h40}"),
    ("api key", "KGAT_{h32}"),
    ("password hash", "$2y$10${m53}"),
    ("password hash", "$1${m8}${m22}"),
    ("password hash", "$apr1${m8}${m22}"),
    ("password hash", "$5${m16}${m43}"),
    ("password hash", "$6$rounds=5000${m16}${m86}"),
    ("password hash", "$y$j9T${m22}${m43}"),
    (
        "password hash",
        "$argon2id$v=19$m=65536,t=3,p=4${m22}${m43}",
    ),
    ("password hash", "pbkdf2_sha256$600000${m22}${m43}="),
];

#[test]
fn every_published_form_is_redacted() {
    for (kind, form) in FORMS {
        let secret = made(form);
        gone(&format!("it is «{secret}» now"), kind);
        gone(&format!("{{\"v\":\"«{secret}»\"}}"), kind);
    }
}

#[test]
fn a_bot_token_in_a_path_is_redacted() {
    let token = made("123456789:AA{m33}");
    let url = format!("https://api.telegram.org/bot«{token}»/getMe");
    gone(&url, "telegram token");
}

#[test]
fn values_in_secret_positions_are_redacted() {
    let cases = [
        (
            "machine git.example.com login ann password «hunter2»",
            "password",
        ),
        ("machine h\n  login ann\n  password «s3cret»\n", "password"),
        (r"machine h\n  login ann\n  password «s3cret»\n", "password"),
        ("htpasswd -b /etc/nginx/users ann «hunter2»", "password"),
        ("htpasswd -nbB ann «hunter2»", "password"),
        ("app:«hunter2»@tcp(127.0.0.1:3306)/shop", "password"),
        ("DSN=\"app:«pa/ss@w0rd»@unix(/run/db)/shop\"", "password"),
        (
            "variable \"admin_password\" {\n  type    = string\n  default = \"«0a1B2c3D»\"\n}",
            "secret",
        ),
        ("DD-APPLICATION-KEY: «0a1b2c3d4e5f6071»", "secret"),
        ("SMTP_PASS=«Tr0ub4dor»", "secret"),
        ("[mail]\npass = \"«Tr0ub4dor»\"", "password"),
        (
            "      - name: MYSQL_ROOT_PASSWORD\n        value: \"«Tr0ub4dor»\"\n",
            "secret",
        ),
        (
            "[{\"name\": \"DB_PASSWORD\", \"value\": \"«Tr0ub4dor»\"}]",
            "secret",
        ),
        (
            "{\\\"name\\\":\\\"DB_PASSWORD\\\",\\\"value\\\":\\\"«Tr0ub4dor»\\\"}",
            "secret",
        ),
        (
            "Unseal Key 1: «AbCdEf0123456789AbCdEf0123456789AbCdEf012345»\nInitial",
            "unseal key",
        ),
        ("AZURE_DEVOPS_EXT_PAT=«0a1b2c3d4e5f6g7h8i9j»", "secret"),
        ("  secret_key_base: «0123456789abcdef0123»", "secret"),
        ("curl -sS -u ann:«hunter2» https://x.example/", "password"),
        ("curl --user 'ann:«pa:ss/wd»' https://x", "password"),
        ("sshpass -p «Tr0ub4dor» ssh host", "password"),
        ("mysqldump -u root -p«Tr0ub4dor» db", "password"),
        ("redis-cli -h cache -a «Tr0ub4dor» ping", "password"),
        ("openssl rsa -passin pass:«hunter2» -in k", "password"),
        ("postgres://app:«pa/ss/w0rd»@db:5432/x", "url password"),
        ("amqp://app:«a/b»@queue", "url password"),
        ("db.example.com:5432:app:ann:«hunter2»", "password"),
        ("CREATE USER ann IDENTIFIED BY '«hunter2»';", "password"),
        ("ALTER ROLE ann WITH PASSWORD '«hunter2»';", "password"),
        ("<db.password>«hunter2!»</db.password>", "secret"),
        ("<add key=\"SmtpPassword\" value=\"«hunter2!»\"/>", "secret"),
        (
            "Cookie: «sid=0a1b2c3d4e5f6071; theme=dark»\nHost: x",
            "cookie",
        ),
        (
            "set-cookie: «session=eyJh0a1b2c3d; Path=/; HttpOnly»",
            "cookie",
        ),
        ("curl -b '«sid=0a1b2c3d4e5f6071»' https://x", "cookie"),
        ("-H \"cookie: «a=1; sid=0a1b2c3d4e5f6071»\"", "cookie"),
        ("Authorization: «0a1b2c3d4e5f6071»", "secret"),
        (
            "PresharedKey = «AbCdEf0123456789AbCdEf0123456789AbCdEf01234=»",
            "secret",
        ),
        ("    client-key-data: «a1B2c3D4e5F6g7H8»", "secret"),
        (
            "{\"kty\":\"EC\",\"d\":\"«0a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1»\"}",
            "private key",
        ),
    ];
    for (marked, kind) in cases {
        gone(marked, kind);
    }
}

#[test]
fn text_similar_to_a_position_or_a_form_is_unchanged() {
    stays("docker run -u 1000:1000 image and chown -R ann:staff .");
    stays("http://localhost:8080/a@2x.png https://example.com:443/x/y@z git@github.com:a/b.git");
    stays("src/main.rs:5432:12:warning:unused1 and localhost:5432:ready");
    stays("mkdir -p target/debug1 && ssh -p 2222 host && cp -a a1 b2");
    stays("login with your password and go on; user name password reset1");
    stays("the cookie: a small file, Cookie: theme=dark");
    stays("curl -u \"$USER:$PASS\" https://x; curl -u ann:${PASSWORD} https://x");
    stays("en-us locale, the-us10 table, MapAZDOne, QQ~x and e.g. s.toString");
    stays("htpasswd -c /etc/nginx/users ann and htpasswd -nb ann $PASSWORD");
    stays("costs $2 to $10, awk '{print $1$2}' and $6$rounds=5000$salt");
    stays("LS32_PAT = \"(?:a1|b2)*.rs?\" and mail ann@tcp(1) or 10:30@unix");
    stays(
        "variable \"db_password\" {\n  type = string\n}\nvariable \"size\" {\n  default = \"t3.large1\"\n}",
    );
    stays(
        "arn:aws:secretsmanager:eu-west-1:123456789012:secret:prod/db-1bCdEf and \"arn:aws:ssm:eu:1:token:abcdef12\"",
    );
    stays(
        "--- PASS: TestLogin12 (0.00s)\nname: DB_PASSWORD\nvalueFrom:\n  secretKeyRef: {name: db1, key: password}",
    );
    stays("name: TOKEN\nvalue: ${TOKEN_1}\npassed = 12 of 13, compass = north2east");
    stays("-u key:value and pass: the tests, pass:100 fail:0");
    stays("PASSWORD 'x' -- <password></password> <token>{{ token }}</token>");
}
