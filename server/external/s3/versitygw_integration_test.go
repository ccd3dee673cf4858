//go:build integration

package s3_test

import (
	"testing"

	"github.com/objcache/objcache/server/external"
	"github.com/objcache/objcache/test/s3server"
)

func TestContract_Versitygw(t *testing.T) {
	srv := s3server.Versitygw(t, "contract")
	contract(t, srv.S3, external.Capabilities{ConditionalPut: true, ConditionalComplete: true, CopyPart: true, CopyIfMatch: true})
}
