// Checks histories of leases for linearizability: one run is one key, one object with an epoch, a revision and an end.
//
//	porcupine FILE     FILE has one operation a line, as tests/chaos/history.py writes it
//
// An operation is known (ok, fail) or not (info: nobody heard the answer; it may take effect at any later time, or
// never). The last line says {"runs","operations","unknown","violations":[…]}; exit 1 when there is a violation.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

type operation struct {
	Run      string `json:"run"`
	Client   int    `json:"client"`
	Kind     string `json:"kind"`   // acquire, write, end
	Answer   string `json:"answer"` // ok, fail, info
	Epoch    int64  `json:"epoch"`
	Revision int64  `json:"revision"` // that it made
	Current  int64  `json:"current"`  // of a refusal: the epoch that it was told
	Call     int64  `json:"call"`
	Return   int64  `json:"return"`
}

type lease struct {
	epoch, revision int64
	ended           bool
}

// What one operation may make of a state; none: it cannot have happened there.
func step(state, input, _ interface{}) []interface{} {
	s, o := state.(lease), input.(operation)
	var effect []interface{}
	switch o.Kind {
	case "acquire": // one term more than before, never of a run that has ended
		if !s.ended && o.Epoch == s.epoch+1 {
			effect = append(effect, lease{o.Epoch, s.revision, false})
		}
	case "write": // by the present term alone; saves in between are not in the history, so the revision only rises
		if !s.ended && o.Epoch == s.epoch && o.Revision > s.revision {
			effect = append(effect, lease{s.epoch, o.Revision, false})
		}
	case "end":
		if !s.ended && o.Epoch == s.epoch && o.Revision > s.revision {
			effect = append(effect, lease{s.epoch, o.Revision, true})
		}
	}
	switch o.Answer {
	case "ok":
		return effect
	case "info":
		return append(effect, s)
	}
	// Refused: the writer was told the present epoch. To refuse the present term is right when its time was over.
	if o.Current == s.epoch && s.epoch >= o.Epoch {
		return []interface{}{s}
	}
	return nil
}

var model = (&porcupine.NondeterministicModel{
	Init:  func() []interface{} { return []interface{}{lease{}} },
	Step:  step,
	Equal: func(a, b interface{}) bool { return a == b },
}).ToModel()

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: porcupine FILE")
		os.Exit(2)
	}
	file, err := os.Open(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	byRun := map[string][]porcupine.Operation{}
	unknown, total := 0, 0
	lines := bufio.NewScanner(file)
	lines.Buffer(make([]byte, 1<<20), 1<<20)
	for lines.Scan() {
		var o operation
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		total++
		if o.Answer == "info" {
			unknown++
		}
		byRun[o.Run] = append(byRun[o.Run], porcupine.Operation{
			ClientId: o.Client, Input: o, Call: o.Call, Output: nil, Return: o.Return})
	}
	violations := []string{}
	for run, history := range byRun {
		if result := porcupine.CheckOperationsTimeout(model, history, 20*time.Second); result != porcupine.Ok {
			violations = append(violations, fmt.Sprintf("%s: %s", run, result))
		}
	}
	line, _ := json.Marshal(map[string]interface{}{
		"runs": len(byRun), "operations": total, "unknown": unknown, "violations": violations})
	fmt.Println(string(line))
	if len(violations) > 0 {
		os.Exit(1)
	}
}
