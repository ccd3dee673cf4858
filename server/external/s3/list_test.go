package s3

import (
	"io"
	"net/http"
	"slices"
	"testing"

	"github.com/objcache/objcache"
	"github.com/objcache/objcache/server/external"
)

func TestList_KeysMayHoldAnyByte(t *testing.T) {
	var encoding string
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		encoding = r.URL.Query().Get("encoding-type")
		_, _ = io.WriteString(w, `<?xml version="1.0"?><ListBucketResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
<NextContinuationToken>t</NextContinuationToken>
<Contents><Key>a%01%FF+b%2Bc</Key><Size>7</Size><ETag>&quot;e&quot;</ETag></Contents>
<CommonPrefixes><Prefix>d%0A/</Prefix></CommonPrefixes></ListBucketResult>`)
	})
	page, err := s.List(t.Context(), external.ListRequest{Delimiter: "/"})
	if err != nil {
		t.Fatal(err)
	}
	want := []external.Object{{Key: "a\x01\xff b+c", Size: 7, ETag: "e"}}
	if encoding != "url" || page.Next != "t" || page.Objects[0].Key != want[0].Key || page.Objects[0].Size != 7 || page.Objects[0].ETag != "e" {
		t.Errorf("got %+v, encoding %q", page, encoding)
	}
	if !slices.Equal(page.Prefixes, []string{"d\n/"}) {
		t.Errorf("prefixes %q", page.Prefixes)
	}
}

func TestList_PageWithoutTokenIsNoEnd(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `<?xml version="1.0"?><ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>`)
	})
	if _, err := s.List(t.Context(), external.ListRequest{}); objcache.KindOf(err) != objcache.IO {
		t.Errorf("got %v", err)
	}
}

func TestListUploads_FollowsPagesAndStopsAtARepeatedOne(t *testing.T) {
	const page = `<?xml version="1.0"?><ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>k</NextKeyMarker>
<NextUploadIdMarker>1</NextUploadIdMarker><Upload><Key>k</Key><UploadId>1</UploadId></Upload></ListMultipartUploadsResult>`
	const last = `<?xml version="1.0"?><ListMultipartUploadsResult><Upload><Key>k</Key><UploadId>2</UploadId></Upload>
<Upload><Key>k2</Key><UploadId>3</UploadId></Upload></ListMultipartUploadsResult>`
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("upload-id-marker") == "1" {
			_, _ = io.WriteString(w, last)
			return
		}
		_, _ = io.WriteString(w, page)
	})
	ups, err := s.ListUploads(t.Context(), "k")
	if err != nil || len(ups) != 2 || ups[0].ID != "1" || ups[1].ID != "2" {
		t.Errorf("got %+v, %v", ups, err)
	}
	s = serve(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, page) })
	if _, err := s.ListUploads(t.Context(), "k"); objcache.KindOf(err) != objcache.IO {
		t.Errorf("a store that repeats its page: %v", err)
	}
}
