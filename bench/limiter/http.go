package limiter

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// HTTP is twotier as its users see it: one POST /v1/acquire for each decision.
type HTTP struct {
	url    string
	client *http.Client
}

// NewHTTP returns an adapter for the server at base, "http://127.0.0.1:8080".
func NewHTTP(base string) *HTTP {
	return &HTTP{url: base + "/v1/acquire", client: &http.Client{Timeout: 10 * time.Second}}
}

// Name is how tables call it.
func (h *HTTP) Name() string { return "twotier" }

type wireLimit struct {
	Window string `json:"window"`
	Max    int64  `json:"max"`
}

type wireCheck struct {
	Key    string      `json:"key"`
	N      int64       `json:"n"`
	Limits []wireLimit `json:"limits"`
}

type wireAcquire struct {
	TS     int64       `json:"ts"`
	Checks []wireCheck `json:"checks"`
}

// AcquireAll sends one request. Any answer but 200 is an error.
func (h *HTTP) AcquireAll(ctx context.Context, checks []Check, ts int64) (bool, error) {
	call := wireAcquire{TS: ts, Checks: make([]wireCheck, len(checks))}
	for i, c := range checks {
		call.Checks[i] = wireCheck{Key: c.Key, N: c.N}
		for _, l := range c.Limits {
			window := time.Duration(l.Window) * time.Millisecond
			call.Checks[i].Limits = append(call.Checks[i].Limits, wireLimit{Window: window.String(), Max: l.Max})
		}
	}
	body, err := json.Marshal(call)
	if err != nil {
		return false, fmt.Errorf("acquire: %w", err)
	}
	return h.post(ctx, body)
}

func (h *HTTP) post(ctx context.Context, body []byte) (bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("acquire: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := h.client.Do(req)
	if err != nil {
		return false, fmt.Errorf("acquire: %w", err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return false, fmt.Errorf("acquire: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("acquire: %s: %s", resp.Status, answer)
	}
	var out struct{ Allowed *bool }
	if err := json.Unmarshal(answer, &out); err != nil || out.Allowed == nil {
		return false, fmt.Errorf("acquire: answer says nothing about allowed: %s", answer)
	}
	return *out.Allowed, nil
}
