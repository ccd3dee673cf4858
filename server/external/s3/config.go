package s3

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/objcache/objcache"
)

// DefaultRegion signs requests when neither Config nor the environment names a region.
const DefaultRegion = "us-east-1"

// Config says which bucket to open and how. Zero values mean the defaults below.
type Config struct {
	Bucket string
	// Endpoint is a URL such as http://minio:9000; "" is AWS (or AWS_ENDPOINT_URL).
	Endpoint string
	Region   string
	// AccessKey and SecretKey, both or none. Without them the SDK's chain applies: environment, shared configuration,
	// web identity, instance metadata.
	AccessKey, SecretKey, SessionToken string
	// CABundle is PEM certificates trusted besides the system's.
	CABundle []byte
	// PathStyle puts the bucket into the path instead of the host name. Default: true with an Endpoint.
	PathStyle *bool
	// ResponseTimeout bounds the wait for the first byte of an answer after a request was sent, and for the next byte of a
	// body. Default 30 s.
	ResponseTimeout time.Duration
}

func (c Config) validate() error {
	switch {
	case c.Bucket == "":
		return objcache.Errorf(objcache.Invalid, "s3: no bucket")
	case (c.AccessKey == "") != (c.SecretKey == ""):
		return objcache.Errorf(objcache.Invalid, "s3: bucket %s: access key and secret key go together", c.Bucket)
	case c.SessionToken != "" && c.AccessKey == "":
		return objcache.Errorf(objcache.Invalid, "s3: bucket %s: a session token without keys", c.Bucket)
	}
	if c.Endpoint == "" {
		return nil
	}
	u, err := url.Parse(c.Endpoint)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return objcache.Errorf(objcache.Invalid, "s3: bucket %s: endpoint %q is no http or https URL", c.Bucket, c.Endpoint)
	}
	return nil
}

func newClient(ctx context.Context, c Config) (*s3.Client, error) {
	roots, err := rootCAs(c)
	if err != nil {
		return nil, err
	}
	opts := []func(*config.LoadOptions) error{
		// The SDK's own client type, because AWS_CA_BUNDLE works with no other. Its read timeout is off: it would also end
		// an upload that takes longer, while nobody waits for an answer.
		config.WithHTTPClient(awshttp.NewBuildableClient().WithReadTimeout(0).
			WithTransportOptions(func(t *http.Transport) { tune(t, roots, c.responseTimeout()) })),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }), // retries are external.Retry's
	}
	if c.Region != "" {
		opts = append(opts, config.WithRegion(c.Region))
	}
	if c.AccessKey != "" {
		opts = append(opts, config.WithCredentialsProvider(credentials.NewStaticCredentialsProvider(c.AccessKey, c.SecretKey, c.SessionToken)))
	}
	cfg, err := config.LoadDefaultConfig(ctx, opts...)
	if err != nil {
		return nil, objcache.Errorf(objcache.Invalid, "s3: bucket %s: load configuration: %w", c.Bucket, err)
	}
	if cfg.Region == "" {
		cfg.Region = DefaultRegion
	}
	cfg.Credentials = classifyCredentials(cfg.Credentials)
	return s3.NewFromConfig(cfg, func(o *s3.Options) { applyOptions(c, o) }), nil
}

func applyOptions(c Config, o *s3.Options) {
	if c.Endpoint != "" {
		o.BaseEndpoint = aws.String(strings.TrimSuffix(c.Endpoint, "/"))
	}
	custom := o.BaseEndpoint != nil
	o.UsePathStyle = custom
	if c.PathStyle != nil {
		o.UsePathStyle = *c.PathStyle
	}
	o.DisableLogOutputChecksumValidationSkipped = true
	if custom {
		// Many stores refuse the trailers that the SDK sends by default.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	}
}

// tune makes the transport one for many parallel transfers of bytes from one host.
func tune(t *http.Transport, roots *x509.CertPool, responseTimeout time.Duration) {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	t.DialContext = dialer.DialContext
	t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	t.TLSHandshakeTimeout = 10 * time.Second
	t.ResponseHeaderTimeout = responseTimeout
	t.ExpectContinueTimeout = time.Second
	// One connection per request in flight: HTTP/2 would push all bytes of a host through one.
	t.ForceAttemptHTTP2 = false
	t.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	t.MaxIdleConns = 0
	t.MaxIdleConnsPerHost = 512
	t.MaxConnsPerHost = 0 // external.Limit bounds requests
	t.IdleConnTimeout = 60 * time.Second
	t.DisableCompression = true
	t.ReadBufferSize = 64 << 10
	t.WriteBufferSize = 64 << 10
}

func (c Config) responseTimeout() time.Duration {
	if c.ResponseTimeout > 0 {
		return c.ResponseTimeout
	}
	return 30 * time.Second
}

func rootCAs(c Config) (*x509.CertPool, error) {
	if len(c.CABundle) == 0 {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(c.CABundle) {
		return nil, objcache.Errorf(objcache.Invalid, "s3: bucket %s: the CA bundle holds no PEM certificate", c.Bucket)
	}
	return pool, nil
}

// classifyCredentials gives the failures of a credentials source their kind: a source that cannot be reached may be
// reached later, one that answers without credentials is a refusal.
func classifyCredentials(p aws.CredentialsProvider) aws.CredentialsProvider {
	if p == nil {
		return nil
	}
	return aws.NewCredentialsCache(aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
		creds, err := p.Retrieve(ctx)
		if err == nil {
			return creds, nil
		}
		kind := kindOf(err)
		if kind != objcache.Unavailable && !errors.Is(err, context.Canceled) {
			kind = objcache.Permission
		}
		return creds, objcache.Errorf(kind, "s3: credentials: %w", err)
	}))
}
