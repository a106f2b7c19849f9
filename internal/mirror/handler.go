package mirror

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
)

// maxBody is the longest body of a request, in bytes.
const maxBody = 1 << 20

// Handler returns the HTTP interface: POST / accepts verdicts and answers 202 at once, GET /
// returns the [Report] as JSON, and GET /text for people. Errors are problems of RFC 9457.
func (m *Mirror) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{$}", m.accept)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, "application/json", m.Report())
	})
	mux.HandleFunc("GET /text", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, m.Report().String()) // the client has left
	})
	return mux
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
		answer(w, status, "application/problem+json", map[string]any{
			"title": http.StatusText(status), "status": status, "detail": err.Error()})
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
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, long := errors.AsType[*http.MaxBytesError](err); long {
		return nil, http.StatusRequestEntityTooLarge,
			fmt.Errorf("body: longer than %d bytes; send fewer verdicts at a time", maxBody)
	}
	if err == nil {
		list, err = Decode(body, m.opt.Now())
	}
	return list, http.StatusBadRequest, err
}

// answer sends an answer. If that fails, the client has left.
func answer(w http.ResponseWriter, status int, kind string, body any) {
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}
