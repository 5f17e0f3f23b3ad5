package main

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

const never = int64(1) << 62

func history(operations ...operation) []porcupine.Operation {
	var all []porcupine.Operation
	for n, o := range operations {
		all = append(all, porcupine.Operation{ClientId: n, Input: o, Call: o.Call, Return: o.Return})
	}
	return all
}

func TestHistories(t *testing.T) {
	first := operation{Kind: "acquire", Answer: "ok", Epoch: 1, Call: 0, Return: 1}
	second := operation{Kind: "acquire", Answer: "ok", Epoch: 2, Call: 10, Return: 11}
	write := func(epoch, revision, call, back int64, answer string) operation {
		return operation{Kind: "write", Answer: answer, Epoch: epoch, Revision: revision, Call: call, Return: back}
	}
	refused := func(epoch, current, call, back int64) operation {
		return operation{Kind: "write", Answer: "fail", Epoch: epoch, Current: current, Call: call, Return: back}
	}
	end := operation{Kind: "end", Answer: "ok", Epoch: 2, Revision: 9, Call: 20, Return: 21}
	for _, c := range []struct {
		what string
		ops  []porcupine.Operation
		want bool
	}{
		{"one term after the other", history(first, write(1, 2, 2, 3, "ok"), second, write(2, 3, 12, 13, "ok"), end), true},
		{"a stale write is refused", history(first, second, refused(1, 2, 12, 13)), true},
		{"a write that overlaps the take-over", history(first, write(1, 2, 5, 12, "ok"), second), true},
		{"a stale write is accepted", history(first, second, write(1, 2, 12, 13, "ok")), false},
		{"a revision is given twice", history(first, write(1, 2, 2, 3, "ok"), write(1, 2, 4, 5, "ok")), false},
		{"an epoch is given twice", history(first, second, second), false},
		{"a write after the end", history(first, second, end, write(2, 10, 22, 23, "ok")), false},
		{"an acquisition after the end", history(first, second, end,
			operation{Kind: "acquire", Answer: "ok", Epoch: 3, Call: 22, Return: 23}), false},
		{"refused by an epoch that is not there yet", history(first, refused(1, 2, 2, 3), second), false},
		{"an unheard write that took effect", history(first, write(1, 2, 2, never, "info"), second,
			write(2, 3, 12, 13, "ok")), true},
		{"an unheard write that took none", history(first, write(1, 5, 2, never, "info"), second,
			write(2, 2, 12, 13, "ok")), true},
	} {
		if got := porcupine.CheckOperations(model, c.ops); got != c.want {
			t.Errorf("%s: %v, not %v", c.what, got, c.want)
		}
	}
}
