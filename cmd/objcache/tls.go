package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
)

// tlsFiles are the flags of how to talk to servers. All empty: plain text.
type tlsFiles struct{ ca, cert, key string }

func (t *tlsFiles) flags(f *pflag.FlagSet) {
	f.StringVar(&t.ca, "ca-file", "", "PEM file: the authority that servers must show a certificate of (empty: plain text)")
	f.StringVar(&t.cert, "cert-file", "", "PEM file: certificate to show to servers")
	f.StringVar(&t.key, "key-file", "", "PEM file: key of the certificate")
}

// absolute makes the paths independent of the working directory.
func (t tlsFiles) absolute() (tlsFiles, error) {
	for _, p := range []*string{&t.ca, &t.cert, &t.key} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return t, err
		}
		*p = abs
	}
	return t, nil
}

// config loads the files; nil for plain text.
func (t tlsFiles) config() (*tls.Config, error) {
	if t == (tlsFiles{}) {
		return nil, nil
	}
	if t.ca == "" || (t.cert == "") != (t.key == "") {
		return nil, fmt.Errorf("TLS needs --ca-file, and --cert-file and --key-file go together")
	}
	pem, err := os.ReadFile(t.ca)
	if err != nil {
		return nil, fmt.Errorf("--ca-file: %w", err)
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: x509.NewCertPool()}
	if !conf.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--ca-file %s has no certificate", t.ca)
	}
	if t.cert == "" {
		return conf, nil
	}
	pair, err := tls.LoadX509KeyPair(t.cert, t.key)
	if err != nil {
		return nil, fmt.Errorf("--cert-file, --key-file: %w", err)
	}
	conf.Certificates = []tls.Certificate{pair}
	return conf, nil
}
