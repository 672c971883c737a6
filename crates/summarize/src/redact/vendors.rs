//! Key and token formats that issuers publish: a prefix and the following characters.
//!
//! A counted repetition at the start of a pattern would keep the automaton active in every word.
//! Formats that are identified by their middle part are therefore in `INFIXES`, and their start is
//! searched backwards.

use super::patterns::{Infix, Pattern, form, value};

/// Formats that are identified by their beginning.
pub(super) const VENDORS: &[Pattern] = &[
    form("anthropic key", r"(?-u:\b(sk-ant-[A-Za-z0-9_-]{16,}))"),
    form(
        "openai key",
        r"(?-u:\b(sk-(?:(?:proj|svcacct|admin|or-v1|lf|service)-[A-Za-z0-9_-]{16,}|[A-Za-z0-9]{20,}\b)|sess-[A-Za-z0-9]{40,}\b))",
    ),
    form(
        "github token",
        r"(?-u:\b(gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{22,}|ghs_[0-9]+_eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+)\b)",
    ),
    form(
        "aws key",
        r"(?-u:\b((?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}|ABSK[A-Za-z0-9+/]{100,}|bedrock-api-key-[A-Za-z0-9+/]{40,})\b={0,2})",
    ),
    form(
        "google key",
        r"(?-u:\b(AIza[A-Za-z0-9_-]{35,}|ya29\.[A-Za-z0-9_-]{20,}|GOCSPX-[A-Za-z0-9_-]{20,}|AQ\.Ab[A-Za-z0-9_-]{30,}|1//0[A-Za-z0-9_-]{30,}))",
    ),
    form(
        "slack token",
        r"(?-u:\b(xox[a-z]-[A-Za-z0-9-]{10,}|xapp-[0-9]-[A-Za-z0-9-]{10,}))",
    ),
    form(
        "gitlab token",
        r"(?-u:\b(gl(?:pat|dt|ptt|cbt|rtr?|soat|ft|imt|agent|oas|ffct|wt)-[A-Za-z0-9_.-]{19,}[A-Za-z0-9_-]|GR1348941[A-Za-z0-9_-]{20}))",
    ),
    form("npm token", r"(?-u:\b(npm_[A-Za-z0-9]{36,})\b)"),
    form(
        "hugging face token",
        r"(?-u:\b((?:hf|api_org)_[A-Za-z0-9]{30,})\b)",
    ),
    form(
        "stripe key",
        r"(?-u:\b((?:sk|rk)_(?:live|test|prod|org_live|org_test)_[A-Za-z0-9]{16,}|whsec_[A-Za-z0-9+/]{24,})\b)",
    ),
    form(
        "sendgrid key",
        r"(?-u:\b(SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,}))",
    ),
    form(
        "webhook",
        r"(?-u:(https://(?:hooks\.slack\.com/(?:services|workflows|triggers)|(?:ptb\.|canary\.)?discord(?:app)?\.com/api/webhooks|[a-z0-9-]+\.webhook\.office\.com/webhookb2|hooks\.zapier\.com/hooks/catch)/[A-Za-z0-9_/@-]{10,}))",
    ),
    // A signed token has three parts, an encrypted one has five.
    form(
        "jwt",
        r"(?-u:\b(eyJ[A-Za-z0-9_-]{8,}\.(?:eyJ)?[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]+){0,2}))",
    ),
    form("docker token", r"(?-u:\b(dckr_[op]at_[A-Za-z0-9_-]{20,}))"),
    form(
        "atlassian token",
        r"(?-u:\b(AT[ACS]TT3x[A-Za-z0-9_=-]{20,}|ATBB[A-Za-z0-9]{28,}|ATTA[a-f0-9]{60,}))",
    ),
    form(
        "discord token",
        r"(?-u:\b([MNO][A-Za-z0-9_-]{22,28}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,45}|mfa\.[A-Za-z0-9_-]{80,}))",
    ),
    form(
        "telegram token",
        r"(?-u:\b(?:bot)?([0-9]{8,10}:AA[A-Za-z0-9_-]{33})\b)",
    ),
    // A base64-encoded PEM block that begins with a common private key header.
    form(
        "private key",
        r"(?-u:\b(LS0tLS1CRUdJTiB(?:SU0EgUFJJVkFURS|QUklWQVRFIEtFW|FQyBQUklWQVRF|PUEVOU1NIIFBSSVZBVE|FTkNSWVBURUQgUFJJVkFUR|EU0EgUFJJVkFUR)[A-Za-z0-9+/]{20,}={0,2}))",
    ),
    // Password hashes in the published formats of crypt(5), the PHC string format and Django.
    form(
        "password hash",
        r"(?-u:(\$2[abxy]?\$[0-9]{2}\$[./A-Za-z0-9]{53}|\$(?:1|apr1)\$[./A-Za-z0-9]{1,8}\$[./A-Za-z0-9]{22}|\$[56]\$(?:rounds=[0-9]+\$)?[./A-Za-z0-9]{1,16}\$[./A-Za-z0-9]{43,86}|\$(?:y|gy|7)\$[./A-Za-z0-9]+\$[./A-Za-z0-9]{1,86}\$[./A-Za-z0-9]{43}|\$(?:argon2(?:id|i|d)|scrypt|pbkdf2-sha(?:256|512))\$(?:v=[0-9]+\$)?[a-z0-9=,]+\$[A-Za-z0-9+/.]{8,86}\$[A-Za-z0-9+/.]{16,}|\bpbkdf2_sha(?:1|256)\$[0-9]+\$[A-Za-z0-9]+\$[A-Za-z0-9+/]{27,43}=))",
    ),
    // Model providers and related services.
    form(
        "api key",
        r"(?-u:\b(gsk_[A-Za-z0-9]{40,}|xai-[A-Za-z0-9]{60,}|r8_[A-Za-z0-9]{37,}|pplx-[A-Za-z0-9]{40,}|nvapi-[A-Za-z0-9_-]{40,}|tvly-[A-Za-z0-9-]{20,}|tgp_v1_[A-Za-z0-9_-]{40,}|fw_[A-Za-z0-9]{22,}|csk-[a-z0-9]{40,}|lsv2_(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}|pcsk_[A-Za-z0-9]{4,8}_[A-Za-z0-9]{40,}|jina_[A-Za-z0-9_-]{50,}|fc-[a-f0-9]{32}|e2b_[a-f0-9]{40}|sk_[a-f0-9]{48}|crsr_[a-f0-9]{60,}|KGAT_[a-f0-9]{32}|voyage-[A-Za-z0-9_-]{40,}|pa-[A-Za-z0-9_-]{43}|wandb_v1_[A-Za-z0-9_]{40,})\b)",
    ),
    // Clouds, databases and hosting.
    form(
        "api key",
        r"(?-u:\b(do[opr]_v1_[a-f0-9]{64}|HRKU-[A-Za-z0-9_-]{36,}|cf(?:ut|at|k)_[A-Za-z0-9]{40,}|v1\.0-[a-f0-9]{24}-[a-f0-9]{100,}|fo1_[A-Za-z0-9_-]{43}|fm[12][a-z]?_[A-Za-z0-9+/=_-]{60,}|vc[pkiar]_[A-Za-z0-9]{24,}|vercel_blob_rw_[A-Za-z0-9_]{30,}|nf[pcoub]_[A-Za-z0-9]{36}|rnd_[A-Za-z0-9]{28,}|pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{32,}|napi_[a-z0-9]{50,}|npg_[A-Za-z0-9]{12,}|sbp_(?:v0_)?[a-f0-9]{40}|sb_secret_[A-Za-z0-9_-]{20,}|dp\.(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]{2,35}\.)?[A-Za-z0-9]{40,44}|pul-[a-f0-9]{40}|dapi[a-f0-9]{32}(?:-[0-9])?|dose[a-f0-9]{32}|AVNS_[A-Za-z0-9_-]{16,}|LTAI[A-Za-z0-9]{16,24}|AKID[A-Za-z0-9]{32}|AQVN[A-Za-z0-9_-]{35,38}|akab-[a-z0-9]{16}-[a-z0-9]{16}|mdb_sa_sk_[A-Za-z0-9_-]{30,}|CCDB1_[A-Za-z0-9]{22}_[A-Za-z0-9]{40}|hv[sbr]\.[A-Za-z0-9_-]{24,}|sha256~[A-Za-z0-9_-]{43}|tskey-[a-z]+-[A-Za-z0-9-]{16,}|ops_eyJ[A-Za-z0-9+/_-]{60,}|A3-[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}|AGE-SECRET-KEY-1[A-Z0-9]{58}|xprv[A-Za-z0-9]{100,})\b)",
    ),
    // Package registries, build services and code hosting.
    form(
        "api key",
        r"(?-u:\b(pypi-AgE[A-Za-z0-9_-]{50,}|rubygems_[a-f0-9]{48}|cio[A-Za-z0-9]{32}|oy2[a-z0-9]{43}|packagist_[a-z]{3}_[a-f0-9]{60,}|CLOJARS_[a-f0-9]{60}|dd[po]_[A-Za-z0-9]{36}|CCIP(?:AT|RJ)_[A-Za-z0-9]{20,}_[a-f0-9]{40}|bk(?:ua|aa|ct)_[a-f0-9]{40}|snyk_[us]at\.[a-z0-9]{8}\.[A-Za-z0-9._-]{20,}|sq[uap]_[a-f0-9]{40}|AKCp[A-Za-z0-9]{50,}|cmVmdGtuOj[A-Za-z0-9]{50,}|sgp_(?:(?:[a-f0-9]{16}|local)_)?[a-f0-9]{40}|API-[A-Z0-9]{26}|ico-[A-Za-z0-9]{32}|dbt[cu]_[A-Za-z0-9_=-]{40,}|pn[ub]_[a-z0-9]{36}|[ps]at\.[A-Za-z0-9_-]{22}\.[a-f0-9]{24}\.[A-Za-z0-9]{20}|jsrp_[A-Za-z0-9]{30,})\b)",
    ),
    // Monitoring and feature flags.
    form(
        "api key",
        r"(?-u:\b(NRAK-[A-Z0-9]{27}|NRII-[A-Za-z0-9_-]{32}|NRRA-[a-f0-9]{42}|gl(?:sa|c)_[A-Za-z0-9_+/]{32,}|sntry[su]_[A-Za-z0-9_=+/-]{32,}|dt0[a-z][0-9]{2}\.[A-Z0-9]{24}\.[A-Z0-9]{64}|hc[abc][il]k_[a-z0-9]{26,58}|xa[ap]t-[a-f0-9-]{36}|dd(?:pat|app)_[A-Za-z0-9]{34,}|ph[xs]_[A-Za-z0-9]{40,}|(?:sdk|api|mob)-[a-f0-9]{8}-[a-f0-9]{4}-4[a-f0-9]{3}-[a-f0-9]{4}-[a-f0-9]{12})\b)",
    ),
    // Productivity, mail, shops and payments.
    form(
        "api key",
        r"(?-u:\b(ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43}|PMAK-[a-f0-9]{24}-[a-f0-9]{34}|PMAT-[A-Z0-9]{26}|lin_(?:api|oauth)_[A-Za-z0-9]{32,}|pat[A-Za-z0-9]{14}\.[a-f0-9]{64}|fig[dou]h?_[A-Za-z0-9_-]{30,}|tfp_[A-Za-z0-9_.=-]{40,}|pk_[0-9]{5,12}_[A-Z0-9]{32}|pat-(?:na|eu|ap)[0-9]-[a-f0-9-]{36}|CFPAT-[A-Za-z0-9_-]{43}|shp(?:at|ss|ca|pa|ua|tka)_[A-Fa-f0-9]{32}|sq0(?:atp|csp)-[A-Za-z0-9_-]{22,}|EAAA[A-Za-z0-9_-]{60}|EAA[A-Za-z0-9]{80,}|SK[0-9a-f]{32}|key-[a-f0-9]{32}|xkeysib-[a-f0-9]{64}-[A-Za-z0-9]{16}|xsmtpsib-[a-f0-9]{64}-[A-Za-z0-9]{16}|re_[A-Za-z0-9]{6,}_[A-Za-z0-9]{20,}|EZ[AT]K[A-Za-z0-9]{50,}|shippo_(?:live|test)_[a-f0-9]{40}|FLWSECK(?:_TEST)?-[A-Za-z0-9]{12,40}-X|duffel_(?:test|live)_[A-Za-z0-9_=-]{40,}|access-(?:sandbox|development|production)-[a-f0-9-]{36}|(?:secret|public)-(?:test|live)-[A-Za-z0-9_=-]{36}|p8e-[a-z0-9]{32}|fio-u-[A-Za-z0-9_=-]{60,}|rdme_[a-z0-9]{60,}|AAAAAAAAAAAAAAAAAAAAA[A-Za-z0-9%]{30,}|sk\.eyJ[A-Za-z0-9_-]{40,}\.[A-Za-z0-9_-]{20,})\b)",
    ),
    form(
        "api key",
        r"(?-u:\b(access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[a-f0-9]{32})\b)",
    ),
    // Older Vault tokens look like a field access in code, which contains no digits.
    value("api key", r"(?-u:\b(s\.[A-Za-z0-9]{24})\b)"),
];

/// Formats that are identified by their middle part.
pub(super) const INFIXES: &[Infix] = &[
    Infix::new("api key", ".atlasv1.", (14, 14), (60, 80)),
    Infix::new("azure secret", "Q~", (4, 4), (31, 34)),
    Infix::new("azure secret", "AZDO", (70, 80), (4, 8)),
    Infix::new("azure secret", "JQQJ9", (50, 54), (20, 30)),
    Infix::new("azure secret", "+ASt", (70, 80), (6, 10)),
    Infix::new("azure secret", "+ASb", (30, 40), (5, 10)),
    Infix::new("azure secret", "AzFu", (40, 48), (6, 10)),
    Infix::new("azure secret", "ACDb", (70, 80), (6, 10)),
    Infix::new("azure secret", "AzSe", (40, 48), (3, 10)),
    Infix::new("api key", "FFFFNRAL", (32, 32), (0, 0)),
    Infix::new("api key", "NRAL", (36, 36), (0, 0)),
    Infix::new("api key", "-us", (32, 32), (1, 2)),
    Infix::new("api key", "_mmk", (36, 36), (0, 0)),
];
