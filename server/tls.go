package server

import (
	"crypto/tls"
	"crypto/x509"
	"os"

	"github.com/objcache/objcache"
)

// loadTLS reads PEM files; nil when none are named.
func loadTLS(t TLS, server bool) (*tls.Config, error) {
	if t == (TLS{}) {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS13}
	if t.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, objcache.Errorf(objcache.Invalid, "certificate %s: %w", t.CertFile, err)
		}
		c.Certificates = []tls.Certificate{cert}
	}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, objcache.Errorf(objcache.Invalid, "authority: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, objcache.Errorf(objcache.Invalid, "authority %s holds no certificate", t.CAFile)
		}
		if server {
			c.ClientCAs, c.ClientAuth = pool, tls.RequireAndVerifyClientCert
		} else {
			c.RootCAs = pool
		}
	}
	return c, nil
}
