import sys,statistics as st
from collections import defaultdict
R=[l.split() for l in open('/tmp/m8/steps.log')]
R=[(int(a),int(n),int(w),int(r),int(d),float(dm),float(v),float(p),float(i),int(acc)) for a,n,w,r,d,dm,v,p,i,acc in R]
D=defaultdict(list)
for k,x in enumerate(R):
    prev=R[k-1] if k else None
    D[(x[0],x[2],x[3])].append(x)
print("cuts width rows   n  draft  verify  inject total (medians/means)")
for k in sorted(D):
    v=D[k]
    if len(v)<5: continue
    f=lambda j:st.median(y[j] for y in v)
    m=lambda j:st.mean(y[j] for y in v)
    print(k,len(v),"  %.2f %.2f %.2f  tot %.2f | mean %.2f %.2f %.2f tot %.2f depth %.0f"%(f(5),f(6),f(8),f(5)+f(6)+f(8),m(5),m(6),m(8),m(5)+m(6)+m(8),m(4)))
# verify by previous step's kind
print("verify median by (rows, prev rows) auto only")
E=defaultdict(list)
for k in range(1,len(R)):
    x,p=R[k],R[k-1]
    E[(x[0],x[3],p[0],p[3])].append(x[6])
for k in sorted(E):
    if len(E[k])>=10: print(k,len(E[k]),"%.2f mean %.2f"%(st.median(E[k]),st.mean(E[k])))
