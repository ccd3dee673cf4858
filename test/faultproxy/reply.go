package faultproxy

import (
	"encoding/xml"
	"io"
	"net"
	"net/http"
	"strconv"
)

// reply sends the upstream's answer, its body whole, cut or with a wrong length.
func (p *Proxy) reply(w http.ResponseWriter, r *http.Request, resp *http.Response, f Fault) {
	h := w.Header()
	for k, v := range resp.Header {
		h[k] = v
	}
	for _, k := range hopByHop {
		h.Del(k)
	}
	length := resp.ContentLength
	if f.LengthDelta != 0 && length >= 0 {
		length = max(0, length+f.LengthDelta)
		h.Set("Content-Length", strconv.FormatInt(length, 10))
	}
	w.WriteHeader(resp.StatusCode)
	if r.Method == http.MethodHead {
		return
	}
	send := io.Reader(resp.Body)
	if length >= 0 {
		send = io.LimitReader(send, length)
	}
	if f.Truncate != nil {
		send = io.LimitReader(send, *f.Truncate)
	}
	err := p.send(w, r, send)
	if f.Truncate != nil || err != nil {
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler) // closes the connection; what was written arrives
	}
}

func (p *Proxy) send(w io.Writer, r *http.Request, body io.Reader) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			if err := p.pace.wait(r.Context(), n); err != nil {
				return err
			}
			p.count(0, n)
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// reset ends the client's connection with an RST.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = conn.Close()
}

type s3Error struct {
	XMLName xml.Name `xml:"Error"`
	Code    string
	Message string
}

func writeError(w http.ResponseWriter, r *http.Request, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	_, _ = io.WriteString(w, xml.Header)
	_ = xml.NewEncoder(w).Encode(s3Error{Code: code, Message: "injected by the fault proxy"}) // the client may be gone
}
