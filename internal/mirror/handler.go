package mirror

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	"twotier.dev/twotier/internal/hostname"
)

// maxBody is the longest body of a request, in bytes.
const maxBody = 1 << 20

// Handler returns the HTTP interface: POST / accepts verdicts and answers 202 at once, GET /
// returns the [Report] as JSON, and GET /text for people. Errors are problems of RFC 9457. It
// answers only requests to hosts that the check allows.
func (m *Mirror) Handler(hosts hostname.Check) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{$}", m.accept)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "application/json", m.Report())
	})
	mux.HandleFunc("GET /text", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, m.Report().String()) // the client has left
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !hosts.Allow([]byte(r.Host)) {
			refuse(w, http.StatusForbidden, errHost)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// errHost is the error of a request that a page in a browser may have sent.
var errHost = errors.New("the Host is no name of this mirror; use its address, or localhost")

// refuse answers with a problem.
func refuse(w http.ResponseWriter, status int, err error) {
	answer(w, status, "application/problem+json", map[string]any{
		"title": http.StatusText(status), "status": status, "detail": err.Error()})
}

// accepted is the answer to verdicts.
type accepted struct {
	Accepted int `json:"accepted"`
	Dropped  int `json:"dropped"`
}

func (m *Mirror) accept(w http.ResponseWriter, r *http.Request) {
	list, status, err := m.read(w, r)
	if err != nil {
		m.RecordInvalid(err)
		refuse(w, status, err)
		return
	}
	dropped := m.Accept(list)
	answer(w, http.StatusAccepted, "application/json", accepted{len(list) - dropped, dropped})
}

// read reads the verdicts of a request, or returns the status and the text of its problem.
func (m *Mirror) read(w http.ResponseWriter, r *http.Request) (list []Verdict, status int,
	err error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" && kind != "application/x-ndjson" {
		// Pages in a browser can't send these types to another origin.
		return nil, http.StatusUnsupportedMediaType,
			fmt.Errorf("Content-Type: %q, want application/json", r.Header.Get("Content-Type"))
	}
	from := m.bodiesOf(r)
	size := r.ContentLength
	if size < 0 || size > maxBody {
		size = maxBody // or longer, which is refused
	}
	if !from.Take(size, time.Now().Add(bodyPatience)) {
		return nil, http.StatusTooManyRequests, errBusy
	}
	defer from.Release(size)
	body, err := readAll(http.MaxBytesReader(w, r.Body, maxBody), size)
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return nil, http.StatusRequestEntityTooLarge,
			fmt.Errorf("body: longer than %d bytes; send fewer verdicts at a time", maxBody)
	}
	if err == nil {
		list, err = m.decode(body)
	}
	return list, http.StatusBadRequest, err
}

// readAll reads a body whose size is known, or at most this.
func readAll(r io.Reader, size int64) ([]byte, error) {
	body := bytes.NewBuffer(make([]byte, 0, size+bytes.MinRead))
	_, err := body.ReadFrom(r)
	return body.Bytes(), err
}

// decode decodes one body at a time: a body may take many times its size while it is decoded.
func (m *Mirror) decode(body []byte) ([]Verdict, error) {
	m.decoding.Lock()
	defer m.decoding.Unlock()
	return Decode(body, m.opt.Now())
}

// answer sends an answer. If that fails, the client has left.
func answer(w http.ResponseWriter, status int, kind string, body any) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
