from distlab.puzzles.messages import Score
from distlab.puzzles.puzzle import Puzzle,MOVES,COLLECTIVES
BIG=Score(1e9,10**9,10**9)
L=("forward","loss","backward","update")
def p(n,calls,ops,sizes):
    return Puzzle(n,str(n),"",{},{},calls,ops,"",("","",""),{s:BIG for s in sizes},{s:BIG for s in sizes})
PUZZLES={q.number:q for q in [
 p(1,("send","receive",*MOVES),(),(4,6)),
 p(2,(*MOVES,"all_reduce"),L,(2,4)),
 p(3,(*MOVES,"all_reduce"),L,(2,4)),
 p(4,(*MOVES,*COLLECTIVES),("forward","loss","backward","adam"),(2,4)),
 p(5,(*MOVES,*COLLECTIVES),L,(2,4)),
 p(6,(*MOVES,*COLLECTIVES),(*L,"linear","linear_backward","backward_input","backward_weight"),(2,4)),
 p(7,(*MOVES,"send","receive"),(*L,"backward_input","backward_weight"),(2,4)),
 p(8,(*MOVES,"all_reduce"),L,(2,4)),
 p(9,(*MOVES,"send","receive","all_gather"),("attend","merge","finish"),(4,6)),
 p(10,(*MOVES,"send","receive","all_to_all","all_gather"),("expert",),(4,6)),
 p(11,(*MOVES,"send","receive",*COLLECTIVES),(*L,"linear","linear_backward","backward_input","backward_weight"),(4,8)),
]}
