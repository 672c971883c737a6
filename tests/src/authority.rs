//! Certificates for tests.

use std::fmt;
use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair,
};

/// A CA that signs certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// Creates a new CA.
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    /// Returns the CA's certificate.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Returns a certificate and its key, as PEM.
    pub fn sign(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        // Servers that identify clients by name read the common name.
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.0).unwrap();
        (cert.pem(), key.serialize_pem())
    }

    /// Writes a certificate for `localhost` and its key to the folder of a server.
    pub fn write(&self, folder: &Path) -> String {
        let (cert, key) = self.sign("localhost");
        std::fs::write(folder.join("tls.key"), &key).unwrap();
        std::fs::write(folder.join("tls.crt"), cert).unwrap();
        key
    }
}
